"""The background signer: outbox rows in, envelopes or recorded waivers out."""
