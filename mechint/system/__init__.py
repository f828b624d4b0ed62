"""The system below everything else: files, locks, processes, progress, and values as JSON."""
