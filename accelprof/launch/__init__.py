"""How workers are started: argv and environment, rendered once, quoted once at the edge that needs a string."""
