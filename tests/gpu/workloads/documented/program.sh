#!/bin/sh
# A user's program.
exec python "$(dirname "$0")/train.py"
