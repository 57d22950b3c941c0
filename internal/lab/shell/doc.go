// Package shell emulates the part of busybox's sh that commands sent over SSH use: a parser, an
// interpreter, and the processes that it starts. It accesses nothing of the machine it runs on: files
// and commands are those of a Machine.
//
// It supports quotes, escapes, $VAR, ${VAR}, $?, $!, $$, $#, $1, "$@", $(...), comments, the operators
// ; & && || | !, groups in ( ) and { }, if, while, until and for, the redirections < > >> 2> 2>&1, and
// the patterns * ? [ in words. Arithmetic, functions, case and here-documents are not supported: they
// are syntax errors, or plain words.
//
// An unknown command prints "sh: X: not found" and has status 127. A process that a signal ends has
// status 128 plus the number of the signal. When a session ends, its processes receive SIGHUP;
// processes under setsid and nohup survive, as on a real host. A session lasts as long as any process
// uses its output.
package shell
