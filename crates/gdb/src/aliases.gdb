# Short names for commands of the recording that do not move time. They are given last: a gdb that knows no aliases with
# arguments stops reading here, and lacks nothing but these.
alias slice = monitor slice
alias prune = monitor prune
alias sbreak = monitor sbreak
alias sdelete = monitor sdelete
alias switch = monitor switch
alias suppress = monitor suppress
