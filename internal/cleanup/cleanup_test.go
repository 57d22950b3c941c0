package cleanup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// newRecord returns the record of a mounted datastore.
func newRecord(server, name string) Record {
	return Record{
		Kind: NFSDatastore, Server: server, Host: "ha-host", Details: map[string]string{"name": name, "path": "/decamp"},
		Text: "datastore " + name, ManualCommand: "esxcli storage nfs remove -v " + name, Since: time.Unix(1_700_000_000, 0).UTC(),
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *Store) recordTexts(t *testing.T) string {
	t.Helper()
	list, err := s.List()
	must(t, err)
	var texts []string
	for _, r := range list {
		texts = append(texts, r.Text)
	}
	return strings.Join(texts, ", ")
}

func TestRecordExistsUntilRemoved(t *testing.T) {
	s := NewStore(t.TempDir())
	id, err := s.Add(newRecord("esx1:443", "a"))
	must(t, err)
	again := newRecord("esx1:443", "a")
	again.Since = again.Since.Add(time.Hour)
	if same, err := s.Add(again); err != nil || same != id {
		t.Errorf("added again: got ID %s, %v; want %s", same, err, id)
	}
	_, err = s.Add(newRecord("esx2:443", "b"))
	must(t, err)
	list, err := s.List()
	must(t, err)
	if len(list) != 2 || !list[0].Since.Equal(newRecord("", "").Since) {
		t.Fatalf("got records %+v", list)
	}
	must(t, s.Remove(id))
	must(t, s.Remove(id))
	if got := s.recordTexts(t); got != "datastore b" {
		t.Errorf("got records %q", got)
	}
}

// The record of a snapshot has no host, because the VM can move to another host. Other records require one.
func TestSnapshotRecordHasNoHost(t *testing.T) {
	s := NewStore(t.TempDir())
	snapshot := Record{Kind: Snapshot, Server: "vc1:443", Details: map[string]string{"vm": "vm-7", "name": "decamp web01 2"}, Text: "snapshot"}
	_, err := s.Add(snapshot)
	must(t, err)
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].HostName() != "vc1:443" || newRecord("esx1:443", "a").HostName() != "ha-host" {
		t.Errorf("got records %+v, %v", list, err)
	}
	var names []string
	done, err := s.Restore(t.Context(), "vc1:443", map[Kind]Undo{Snapshot: func(_ context.Context, r Record) error {
		names = append(names, r.Details["name"])
		return nil
	}})
	if err != nil || len(done) != 1 || len(names) != 1 || s.recordTexts(t) != "" {
		t.Errorf("called Undo for %v, reverted %v, %v", names, done, err)
	}
	withoutHost := newRecord("esx1:443", "a")
	withoutHost.Host = ""
	_, err = s.Add(withoutHost)
	must(t, err)
	if _, err := s.List(); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a datastore without a host: %v", err)
	}
}

func TestRestoreRevertsEachRecordOfTheServer(t *testing.T) {
	s := NewStore(t.TempDir())
	for _, r := range []Record{newRecord("esx1:443", "a"), newRecord("esx1:443", "busy"), newRecord("esx2:443", "other")} {
		_, err := s.Add(r)
		must(t, err)
	}
	done, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(_ context.Context, r Record) error {
		if r.Details["name"] == "busy" {
			return fault.New(fault.Conflict, "a file is open").WithHint("wait")
		}
		return nil
	}})
	if len(done) != 1 || done[0].Text != "datastore a" {
		t.Errorf("reverted %+v", done)
	}
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "host ha-host still has datastore busy: a file is open") {
		t.Errorf("got error %v", err)
	}
	for _, part := range []string{"wait", "logs in to esx1:443", "decamp clean", "esxcli storage nfs remove -v busy"} {
		if !strings.Contains(fault.HintOf(err), part) {
			t.Errorf("%q is missing in remedy %s", part, fault.HintOf(err))
		}
	}
	if got := s.recordTexts(t); got != "datastore busy, datastore other" && got != "datastore other, datastore busy" {
		t.Errorf("got records %q", got)
	}
}

func TestUnreadableRecordIsKeptAndReported(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":  "{",
		"nothing":  "{}",
		"too new":  `{"version":2,"kind":"nfs-datastore","server":"esx1:443","host":"ha-host"}`,
		"another":  `{"version":1,"kind":"nfs-datastore","server":"esx1:443","host":"ha-host"}`,
		"no place": `{"version":1,"kind":"nfs-datastore"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := NewStore(dir)
			_, err := s.Add(newRecord("esx1:443", "good"))
			must(t, err)
			bad := filepath.Join(dir, "leftovers", "0123456789abcdef.json")
			must(t, os.WriteFile(bad, []byte(text), 0o600))
			must(t, os.WriteFile(bad+".new", []byte("half a rec"), 0o600))
			done, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(context.Context, Record) error { return nil }})
			if len(done) != 1 {
				t.Errorf("reverted %+v", done)
			}
			if k := fault.KindOf(err); k != fault.Corrupt && k != fault.Unsupported || !strings.Contains(err.Error(), bad) || fault.HintOf(err) == "" {
				t.Errorf("got error %v (%v), remedy %q", err, k, fault.HintOf(err))
			}
			if _, err := os.Stat(bad); err != nil {
				t.Error("the record is lost:", err)
			}
		})
	}
}

func TestRecordOfUnknownKindIsKept(t *testing.T) {
	s := NewStore(t.TempDir())
	_, err := s.Add(newRecord("esx1:443", "a"))
	must(t, err)
	if _, err := s.Restore(t.Context(), "esx1:443", nil); !fault.Is(err, fault.Unsupported) {
		t.Errorf("got error %v", err)
	}
	if got := s.recordTexts(t); got != "datastore a" {
		t.Errorf("got records %q", got)
	}
}

func TestAddFailsInUnwritableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := NewStore(file).Add(newRecord("esx1:443", "a")); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("got error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"nfs-datastore","server":"esx1:443","host":"ha-host","details":{"name":"a"},"since":"2026-11-21T00:00:00Z"}`))
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version":1,"kind":"ssh-service","server":"s","host":"h","details":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeRecord(text)
		if err != nil {
			var known *fault.Error
			if !errors.As(err, &known) || known.Hint == "" {
				t.Fatalf("error %v has no remedy", err)
			}
			return
		}
		if r.Version != version || r.Kind == "" || r.Server == "" || r.Host == "" {
			t.Fatalf("invalid record %+v is accepted", r)
		}
		s := NewStore(t.TempDir())
		id, err := s.Add(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := s.readRecord(id); err != nil || back.ID() != id {
			t.Fatalf("wrote %+v, read %+v, %v", r, back, err)
		}
	})
}
