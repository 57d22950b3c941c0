package logging

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// journalSocket is the socket of systemd's journal.
const journalSocket = "/run/systemd/journal/socket"

// ownFields are the fields that each entry has. An attribute of such a name gets a prefix.
var ownFields = []string{"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "MESSAGE_ID"}

// journal is a slog.Handler that sends records to systemd's journal. Its message is the text of the record with all
// attributes; each attribute is a field too.
type journal struct {
	conn   *net.UnixConn // connection to the journal
	path   string        // path of the socket
	level  slog.Level    // least level of records
	attrs  []slog.Attr   // attributes of WithAttrs, with their groups in their keys
	prefix string        // groups of WithGroup, each followed by a dot
}

// newJournal returns a handler that sends to the socket at path.
func newJournal(path string, level slog.Level) (slog.Handler, error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("journal of systemd: %w", err)
	}
	return &journal{conn: conn, path: path, level: level}, nil
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(_ context.Context, level slog.Level) bool { return level >= j.level }

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(name string) slog.Handler {
	if name == "" {
		return j
	}
	with := *j
	with.prefix += name + "."
	return &with
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *j
	with.attrs = append([]slog.Attr(nil), j.attrs...)
	for _, a := range attrs {
		with.attrs = appendFlat(with.attrs, j.prefix, a)
	}
	return &with
}

// appendFlat appends an attribute with the names of its groups in its key. Empty attributes are left out.
func appendFlat(all []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return all
	}
	if a.Value.Kind() != slog.KindGroup {
		return append(all, slog.Attr{Key: prefix + a.Key, Value: a.Value})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range a.Value.Group() {
		all = appendFlat(all, prefix, inner)
	}
	return all
}

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	attrs := append([]slog.Attr(nil), j.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = appendFlat(attrs, j.prefix, a)
		return true
	})
	message := r.Message
	for _, a := range attrs {
		message += " " + a.Key + "=" + quoteValue(a.Value.String())
	}
	var entry bytes.Buffer
	writeField(&entry, "MESSAGE", message)
	writeField(&entry, "PRIORITY", strconv.Itoa(priorityOf(r.Level)))
	writeField(&entry, "SYSLOG_IDENTIFIER", "decamp")
	for _, a := range attrs {
		writeField(&entry, fieldName(a.Key), a.Value.String())
	}
	return j.send(entry.Bytes())
}

// quoteValue quotes a value that contains spaces, quotes or control characters.
func quoteValue(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f }) {
		return strconv.Quote(value)
	}
	return value
}

// priorityOf returns the priority of syslog(3) for a level.
func priorityOf(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}

// writeField writes a field in the format for exporting journals: values with a newline are preceded by their length.
func writeField(entry *bytes.Buffer, name, value string) {
	entry.WriteString(name)
	if strings.Contains(value, "\n") {
		entry.WriteByte('\n')
		_ = binary.Write(entry, binary.LittleEndian, uint64(len(value))) // into memory
	} else {
		entry.WriteByte('=')
	}
	entry.WriteString(value)
	entry.WriteByte('\n')
}

// send sends an entry. An entry that is too long for a datagram is sent as a file in memory.
func (j *journal) send(entry []byte) error {
	_, err := j.conn.Write(entry)
	if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
		return j.sendFile(entry)
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTCONN) { // the journal was restarted
		var again *net.UnixConn
		if again, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: j.path, Net: "unixgram"}); err == nil {
			defer again.Close()
			_, err = again.Write(entry)
		}
	}
	return err
}

// sendFile sends an entry as a sealed file in memory.
func (j *journal) sendFile(entry []byte) error {
	fd, err := unix.MemfdCreate("decamp-log", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "log")
	defer f.Close()
	if _, err := f.Write(entry); err != nil {
		return err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return err
	}
	raw, err := j.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(socket uintptr) bool { // package net sends no descriptors over a connected datagram socket
		sent = unix.Sendmsg(int(socket), nil, unix.UnixRights(fd), nil, 0)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}
