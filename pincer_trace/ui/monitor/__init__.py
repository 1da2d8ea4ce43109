"""`pincer-trace monitor`: what a session does, live, and answering its questions. Imports textual: half a second."""
