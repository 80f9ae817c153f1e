# Runs a command in the foreground of a new terminal, presses keys when it says "ready", and tells how it went.
#
# A small session leader stands where a shell would: it starts the command as the foreground job, notices stops and
# continues the job, so that Ctrl-Z works as it does from a shell (in an orphaned process group it would be ignored).
# Keys: C-c, C-z, C-backslash, Enter, single characters; `continue` waits until the job has stopped and continues it,
# `resize` changes the window, TERM and HUP are sent to the command's process alone.
# Prints how the command ended, then the terminal's output with its control characters made visible.
import fcntl, os, pty, select, signal, struct, sys, termios, time

keys = sys.argv[sys.argv.index('--keys') + 1].split(',')
command = sys.argv[sys.argv.index('--keys') + 2:]
LIMIT = time.monotonic() + 60


def lead_session(tell):
    """In the new session: run the command as the foreground job and tell what becomes of it, one line per event."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        for s in (signal.SIGTTOU, signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
            signal.signal(s, signal.SIG_DFL)
        os.close(tell)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(error)
        os._exit(127)
    os.write(tell, b'job %d\n' % job)
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.write(tell, b'stopped %d\n' % os.WSTOPSIG(status))
        elif os.WIFSIGNALED(status):
            os.write(tell, b'signal %d\n' % os.WTERMSIG(status))
            os._exit(0)
        else:
            os.write(tell, b'exit %d\n' % os.WEXITSTATUS(status))
            os._exit(0)


hear, tell = os.pipe()
leader, fd = pty.fork()
if leader == 0:
    os.close(hear)
    lead_session(tell)
os.close(tell)
output, heard, sources = b'', b'', {fd, hear}


def pump(wait):
    """Takes what the terminal and the session leader say."""
    global output, heard
    ready, _, _ = select.select(list(sources), [], [], wait)
    for source in ready:
        try:
            data = os.read(source, 4096)
        except OSError:
            # The terminal has no other end any more.
            data = b''
        if not data:
            sources.discard(source)
        elif source == fd:
            output += data
        else:
            heard += data
    if not sources:
        time.sleep(0.01)


def wait_until(done):
    while not done() and time.monotonic() < LIMIT:
        pump(0.05)


def ended():
    return b'exit ' in heard or b'signal ' in heard


wait_until(lambda: heard.endswith(b'\n') and (b'ready' in output or ended()))
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
job = int(heard.split()[1])
time.sleep(0.3)
for key in keys:
    if key == 'continue':
        wait_until(lambda: b'stopped' in heard or ended())
        time.sleep(0.2)
        os.killpg(job, signal.SIGCONT)
    elif key == 'resize':
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 33, 77, 0, 0))
    elif key in ('TERM', 'HUP'):
        os.kill(job, getattr(signal, 'SIG' + key))
    else:
        os.write(fd, {'C-c': b'\x03', 'C-z': b'\x1a', 'C-backslash': b'\x1c', 'Enter': b'typed\n'}.get(key, key.encode()))
    time.sleep(0.3)
wait_until(ended)
wait_until(lambda: fd not in sources)
if not ended():
    os.killpg(job, signal.SIGKILL)
os.waitpid(leader, 0)
print(heard.decode().split('\n', 1)[1] if ended() else 'did not end\n', end='')
print(output.decode(errors='replace').replace('\r', '\\r').replace('\x1b', '\\e'))
