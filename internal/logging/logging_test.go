package logging

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeJournal is a server on the socket of a journal.
type fakeJournal struct {
	path string
	conn *net.UnixConn
}

func newFakeJournal(t *testing.T) *fakeJournal {
	t.Helper()
	f := &fakeJournal{path: filepath.Join(t.TempDir(), "socket")}
	f.listen(t)
	t.Cleanup(func() { f.conn.Close() })
	return f
}

func (f *fakeJournal) listen(t *testing.T) {
	t.Helper()
	var err error
	if f.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
}

// readEntry returns the fields of the next entry, which may be in a file.
func (f *fakeJournal) readEntry(t *testing.T) map[string]string {
	t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(time.Minute))
	entry, control := make([]byte, 1<<20), make([]byte, 100)
	n, rights, _, _, err := f.conn.ReadMsgUnix(entry, control)
	if err != nil {
		t.Fatal(err)
	}
	entry = entry[:n]
	if rights > 0 {
		messages, err := unix.ParseSocketControlMessage(control[:rights])
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fds[0]), "entry")
		defer file.Close()
		if seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_WRITE == 0 {
			t.Errorf("the file of the entry is not sealed: %#x, %v", seals, err)
		}
		entry = make([]byte, 4<<20)
		n, err := file.ReadAt(entry, 0)
		if n == 0 {
			t.Fatal(err)
		}
		entry = entry[:n]
	}
	return parseEntry(t, entry)
}

// parseEntry parses the native protocol of the journal.
func parseEntry(t *testing.T, entry []byte) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for len(entry) > 0 {
		end := bytes.IndexByte(entry, '\n')
		name, value, short := strings.Cut(string(entry[:end]), "=")
		entry = entry[end+1:]
		if !short {
			size := binary.LittleEndian.Uint64(entry)
			value, entry = string(entry[8:8+size]), entry[8+size+1:]
		}
		if _, twice := fields[name]; twice {
			t.Errorf("got field %s twice", name)
		}
		fields[name] = value
	}
	return fields
}

func TestJournalFields(t *testing.T) {
	f := newFakeJournal(t)
	h, err := newJournal(f.path, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(h)
	log.Debug("not logged")
	log.With("run", "web1-1f", "plan", "wave1").WithGroup("disk").Warn("retrying", "key", 2000, "vm", slog.GroupValue(slog.String("ref", "vm-1")), "err", errors.New("two\nlines"))
	got := f.readEntry(t)
	want := map[string]string{
		"MESSAGE": `retrying run=web1-1f plan=wave1 disk.key=2000 disk.vm.ref=vm-1 disk.err="two\nlines"`, "PRIORITY": "4", "SYSLOG_IDENTIFIER": "decamp",
		"RUN": "web1-1f", "PLAN": "wave1", "DISK_KEY": "2000", "DISK_VM_REF": "vm-1", "DISK_ERR": "two\nlines",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got fields %v", got)
	}
	log.Error("event", "message", "hello", "_x", 1)
	if got := f.readEntry(t); got["MESSAGE"] != "event message=hello _x=1" || got["DECAMP_MESSAGE"] != "hello" || got["X"] != "1" || got["PRIORITY"] != "3" {
		t.Errorf("got fields %v", got)
	}
}

// The journal receives an entry that is too long for a datagram, and the first entry after its restart.
func TestJournalWithLongEntriesAndRestart(t *testing.T) {
	f := newFakeJournal(t)
	h, err := newJournal(f.path, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	if err := h.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, long, 0)); err != nil {
		t.Fatal(err)
	}
	if got := f.readEntry(t); got["MESSAGE"] != long {
		t.Errorf("got an entry of %d bytes", len(got["MESSAGE"]))
	}
	f.conn.Close()
	_ = os.Remove(f.path)
	f.listen(t)
	slog.New(h).Info("again")
	if got := f.readEntry(t); got["MESSAGE"] != "again" {
		t.Errorf("got fields %v", got)
	}
	if _, err := newJournal(filepath.Join(t.TempDir(), "none"), slog.LevelInfo); err == nil {
		t.Error("newJournal succeeds without a journal")
	}
}

func TestFormats(t *testing.T) {
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "json") {
		t.Errorf("format xml: %v", err)
	}
	var b bytes.Buffer
	f, err := ParseFormat("json")
	if err != nil || !f.IsStructured() {
		t.Fatal(f, err)
	}
	h, err := NewHandler(f, &b, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	slog.New(h).Info("hello", "run", "web1-1f")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["msg"] != "hello" || line["run"] != "web1-1f" {
		t.Errorf("got line %s, %v", b.Bytes(), err)
	}
	if Text.IsStructured() {
		t.Error("format text is structured")
	}
}
