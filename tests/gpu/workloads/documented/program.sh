#!/bin/sh
# A program of a user.
exec python "$(dirname "$0")/train.py"
