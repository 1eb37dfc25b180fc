"""The producer-id quota at a session: admission, holds, refusals and sequence gates."""
