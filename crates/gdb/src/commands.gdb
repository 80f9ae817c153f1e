# Short names for the commands of the recording. Those that move time end with a stepi, at which the server takes no
# step but shows gdb where it is.
define when
monitor when
end
document when
Show the current moment of the recording.
end
define seek
monitor seek $arg0
stepi
end
document seek
Go to a moment of the recording: seek MOMENT.
end
define instance
monitor instance $arg0
stepi
end
document instance
Go to an execution of a line: instance FILE:LINE or FILE:LINE#N.
end
define rollback
monitor rollback $arg0
stepi
end
document rollback
Go back to a checkpoint: rollback N.
end
