"""What backends, tools, plug-ins and readers keep to: protocols and plain records."""
