// Package cleanup records changes that decamp makes on hosts until they are reverted, such as a mounted
// datastore or a started service.
//
// # Command
//
//	Add     makes the record durable   before the request to the host
//	        the host is changed, used, and changed back
//	Remove  removes the record         after the host has confirmed
//
// After a crash at any point, the records include all remaining changes on hosts, and perhaps one that
// was never made. Therefore reverting treats a missing object as success. Restore reverts all records of
// one server: each decamp process of the same state folder that logs in there calls it.
//
// The package has no connection to hosts: the caller reverts each kind of change. Callers hold the lock
// of the state folder, share the records (NewShared), or lock single records (Hold).
package cleanup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Kind is the kind of a change. It determines how the change is reverted.
type Kind string

// Kinds of changes on hosts.
const (
	NFSDatastore Kind = "nfs-datastore" // an export of decamp that a host has mounted; What has server, path and name
	ShellJob     Kind = "shell-job"     // a command that continues on the host without decamp; What has the name of its job
	SSHService   Kind = "ssh-service"   // the SSH service, which was off and was started
	Snapshot     Kind = "snapshot"      // a snapshot of a VM that is copied while it runs; What has vm and name
)

// Record is one change of one host.
type Record struct {
	Version       int               `json:"version"`                 // version of this format: 1
	Kind          Kind              `json:"kind"`                    // kind of the change
	Server        string            `json:"server"`                  // host:port that decamp logged in to
	Host          inventory.MoRef   `json:"host"`                    // host by its MoRef on that server; empty for a change that moves with its VM
	Details       map[string]string `json:"details,omitempty"`       // details by name, depending on Kind
	Text          string            `json:"text"`                    // description: "datastore decamp-12ab34cd"
	ManualCommand string            `json:"manualCommand,omitempty"` // command that reverts the change; empty if missing
	Since         time.Time         `json:"since"`                   // time of the change
	Owner         string            `json:"owner,omitempty"`         // process that made the change, if processes share the records
}

// HostName returns the name of the host, or of the server if the change belongs to no host.
func (r Record) HostName() string { return cmp.Or(string(r.Host), r.Server) }

// version is the version of the records' format.
const version = 1

// ID identifies a record. The same change of the same host has the same ID.
type ID string

// idBytes is the number of bytes of the SHA-256 in an ID. It suffices for the few records that exist at
// a time.
const idBytes = 8

// ID returns the ID of the record. It depends on kind, server, host and What.
func (r Record) ID() ID {
	parts := []string{string(r.Kind), r.Server, string(r.Host)}
	for name, value := range r.Details {
		parts = append(parts, name+"="+value)
	}
	slices.Sort(parts[3:])
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return ID(hex.EncodeToString(sum[:idBytes]))
}

// Store stores records. It is safe for concurrent use.
type Store struct {
	keeper     Keeper        // location of the records
	retryLimit time.Duration // time limit for an unreachable keeper

	// name of this process if processes share the records, else empty
	owner string
	// reports whether another process will not revert its changes; nil unless processes share the records
	isGone func(owner string) bool

	mu      sync.Mutex           // guards the fields below
	used    map[ID]bool          // changes of this process that it neither reverted nor released
	undoing map[ID]chan struct{} // changes that this process is reverting; each channel is closed at the end
}

// NewStore returns the store in the state directory dir, which need not exist.
func NewStore(dir string) *Store {
	return &Store{keeper: Folder(dir), retryLimit: retryLimit}
}

// Folder returns the Keeper of the state directory dir, which need not exist.
func Folder(dir string) Keeper { return folder(filepath.Join(dir, "leftovers")) }

// Add durably records a change before it is made. If the change is on record, the record stays but now
// belongs to this process.
func (s *Store) Add(r Record) (ID, error) {
	id := r.ID()
	before := s.markUsed(id, true) // then no other process reverts the change
	if err := s.recordOwn(id, r); err != nil {
		s.markUsed(id, before)
		return "", err
	}
	return id, nil
}

// recordOwn writes r, unless it is on record for this process.
func (s *Store) recordOwn(id ID, r Record) error {
	before, err := s.readRecord(id)
	if err == nil {
		r = before
	}
	if err != nil || before.Owner != s.owner {
		r.Version, r.Owner = version, s.owner
		err = s.writeRecord(id, r)
	}
	switch {
	case fault.Is(err, fault.Unreachable), fault.Is(err, fault.Full):
		return fmt.Errorf("record %s, so that nothing was changed on the host: %w", r.Text, err)
	case err != nil:
		return fault.New(fault.Denied, "record %s: %w", r.Text, err).
			WithHint("nothing was changed on the host; make room in the state directory, or name another with --state DIR")
	}
	return nil
}

// writeRecord durably writes r in JSON.
func (s *Store) writeRecord(id ID, r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return s.withRetry(func(ctx context.Context) error { return s.keeper.Put(ctx, id, append(text, '\n')) })
}

// Remove durably removes the record of a reverted change. It succeeds if the record is missing.
func (s *Store) Remove(id ID) error {
	if err := s.withRetry(func(ctx context.Context) error { return s.keeper.Drop(ctx, id) }); err != nil {
		return fmt.Errorf("forget record %s: %w", id, err)
	}
	s.markUsed(id, false)
	return nil
}

// List returns the records, oldest first. Unreadable records are in the error with their location, and
// stay.
func (s *Store) List() ([]Record, error) {
	all, err := s.loadAll()
	list, unread := s.parseAll(all)
	return list, errors.Join(err, unread)
}

// parseAll parses all records and sorts them, oldest first. The error has the unreadable ones.
func (s *Store) parseAll(all map[ID][]byte) (list []Record, err error) {
	var errs []error
	for id, doc := range all {
		r, err := s.parseRecord(id, doc)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID(), b.ID())) })
	return list, errors.Join(errs...)
}

// loadAll returns the content of all records by ID.
func (s *Store) loadAll() (all map[ID][]byte, err error) {
	err = s.withRetry(func(ctx context.Context) (err error) {
		all, err = s.keeper.All(ctx)
		return err
	})
	return all, err
}

// readRecord returns a record, or fs.ErrNotExist.
func (s *Store) readRecord(id ID) (Record, error) {
	all, err := s.loadAll()
	doc, found := all[id]
	switch {
	case found:
		return s.parseRecord(id, doc)
	case err != nil:
		return Record{}, err
	}
	return Record{}, fs.ErrNotExist
}

// parseRecord parses the record with that ID. A record of another change is fault.Corrupt.
func (s *Store) parseRecord(id ID, doc []byte) (Record, error) {
	r, err := decodeRecord(doc)
	if err == nil && r.ID() != id {
		err = fault.New(fault.Corrupt, "it is of another change (%s)", r.ID()).WithHint("%s", byHand)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read record %s: %w", s.keeper.Where(id), err)
	}
	return r, nil
}

// byHand is the remedy for a record that cannot be read.
const byHand = "it records a change on a host: read it, revert the change manually, and delete the file"

// decodeRecord parses a record. A newer version is fault.Unsupported, any other problem fault.Corrupt.
func decodeRecord(text []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fault.New(fault.Corrupt, "%w", err).WithHint("%s", byHand)
	}
	switch {
	case r.Version != version:
		return r, fault.New(fault.Unsupported, "its format is version %d, and this decamp supports version %d", r.Version, version).
			WithHint("use the version of decamp that wrote it, or a newer one")
	case r.Kind == "" || r.Server == "" || r.Host == "" && r.Kind != Snapshot:
		return r, fault.New(fault.Corrupt, "it does not contain the change and its host").WithHint("%s", byHand)
	}
	return r, nil
}

// Undo reverts one change. It succeeds if the change is not there any more.
type Undo func(ctx context.Context, r Record) error

// Restore reverts the recorded changes on a server, the newest first: a file is closed before its
// datastore is removed. It returns the reverted records. Changes that could not be reverted stay on
// record and are in the error, as are unreadable records. Restore ignores changes in use (NewShared, Hold).
func (s *Store) Restore(ctx context.Context, server string, undo map[Kind]Undo) (done []Record, err error) {
	list, err := s.List()
	errs := []error{err}
	for _, r := range slices.Backward(list) {
		if r.Server != server {
			continue
		}
		was, err := s.undoRecord(ctx, r, undo[r.Kind])
		if err != nil {
			errs = append(errs, err)
		}
		if was {
			done = append(done, r)
		}
	}
	return done, errors.Join(errs...)
}

// undoRecord reverts one change unless it is in use, and removes its record.
func (s *Store) undoRecord(ctx context.Context, r Record, undo Undo) (was bool, err error) {
	over, free := s.beginUndo(r)
	if !free {
		return false, nil
	}
	defer over()
	if undo == nil {
		return false, fault.New(fault.Unsupported, "host %s still has %s, and this version of decamp cannot revert it", r.HostName(), r.Text).
			WithHint("use the version of decamp that wrote it, or a newer one")
	}
	if err := undo(ctx, r); err != nil {
		return false, LeftoverError(r, err)
	}
	err = s.Remove(r.ID())
	return err == nil, err
}

// LeftoverError returns the error for a change that could not be reverted because of why.
func LeftoverError(r Record, why error) error {
	e := fault.New(fault.KindOf(why), "host %s still has %s: %w", r.HostName(), r.Text, why)
	remedy := "it is recorded; the next command that logs in to " + r.Server + " reverts it, such as decamp clean URL"
	if r.ManualCommand != "" {
		remedy += "; manually, on the host: " + r.ManualCommand
	}
	if why := fault.HintOf(why); why != "" {
		remedy = why + "; " + remedy
	}
	return e.WithHint("%s", remedy)
}
