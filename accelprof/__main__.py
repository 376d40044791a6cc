"""``python -m accelprof``."""

from accelprof.cli.main import main

main()
