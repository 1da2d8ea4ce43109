"""What tests import: the scripted kernel (`fakes`)."""
