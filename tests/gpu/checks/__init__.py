"""The checks, one file for each property that gpuwhy guarantees."""
