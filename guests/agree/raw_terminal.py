# A full-screen program in small: reads the window size, goes to raw mode, takes one key and notices a resize.
import os, signal, sys, termios, tty

sizes = []
signal.signal(signal.SIGWINCH, lambda s, f: sizes.append(os.get_terminal_size()))
before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b'ready %dx%d\r\n' % tuple(os.get_terminal_size()))
key = os.read(0, 1)
termios.tcsetattr(0, termios.TCSADRAIN, before)
print('key', key, 'size', tuple(os.get_terminal_size()), 'noticed', len(sizes) > 0, 'foreground', os.tcgetpgrp(0) == os.getpgrp())
