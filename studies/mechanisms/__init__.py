"""Studies of what the gate's answers, and rounds without them, are worth."""
