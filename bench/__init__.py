"""The benchmark: putback beside a shadow repository, restic, borg, `cp -a` and a bare stat walk."""
