"""What is measured, one probe a file: each says what it needs and writes to the recorder."""
