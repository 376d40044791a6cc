"""Where files go, what they are called, and the manifest that lists them."""
