"""Where the entry points of 0.1 lead, in environments that were installed with it; they name :mod:`accelprof.session.joining` now.
Goes with the next release."""

from accelprof.session.joining import install

__all__ = ["install"]
