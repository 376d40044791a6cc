"""Figures of a run where people already look: each exporter a file, each library asked for only when it is used."""
