"""Real clients of every library behind one face, and the judgement on what they read back."""
