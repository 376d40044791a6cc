"""A user's words become a ``Config`` once; everything later asks the plan."""
