// Package shell is the part of busybox's sh that commands sent over SSH use: a parser of
// POSIX quoting and lists, an interpreter, and the processes it starts. It touches nothing
// of the machine it runs on: files and commands are what a Machine is given.
//
// It knows quotes, escapes, $VAR, ${VAR}, $?, $!, $$, $1, "$@", $(...), comments, ; & && ||
// | ! ( ) { }, if, while, until, and the redirections < > >> 2> 2>&1. It does not know
// globbing, arithmetic, functions, case, for and here-documents: those are syntax errors,
// or plain words.
//
// A command that is not there answers "sh: X: not found" and 127. A process that a signal
// ends has status 128 and the signal. When a session ends, its processes are hung up;
// setsid and nohup are what saves them, as on a real host. A session lasts as long as any
// process has its output open.
package shell
