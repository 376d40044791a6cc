"""Files of every tool become spans; tolerant of files, strict with numbers."""
