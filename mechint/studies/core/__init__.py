"""What every study is made of: runs, claims, the runner and the record."""
