"""Which release this is: the one place, of which the distribution's version is made."""

VERSION = "0.1.0"
