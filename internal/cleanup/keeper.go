package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Keeper is a store of records: a folder, or a database that processes share. It must be safe for
// concurrent use.
type Keeper interface {
	// Put durably stores a record.
	Put(ctx context.Context, id ID, doc []byte) error

	// Drop removes a record. It succeeds if the record is missing.
	Drop(ctx context.Context, id ID) error

	// All returns the records as they were stored. Records that cannot be read are in the error; the
	// others are returned with it.
	All(ctx context.Context) (map[ID][]byte, error)

	// Where returns the location of a record for messages.
	Where(id ID) string
}

// A folder stores each record in a separate file.
type folder string

// suffix is the end of the name of a record's file.
const suffix = ".json"

// Where returns the path of the file.
func (f folder) Where(id ID) string { return filepath.Join(string(f), string(id)+suffix) }

// Put writes the file atomically and durably.
func (f folder) Put(_ context.Context, id ID, doc []byte) error {
	return fault.Room(filepath.Dir(string(f)), f.writeFile(id, doc))
}

// writeFile is Put without the remedy for a full file system.
func (f folder) writeFile(id ID, doc []byte) error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Sync(filepath.Dir(string(f))); err != nil {
		return err
	}
	return atomicfile.Replace(f.Where(id), doc, 0o600)
}

// Drop durably removes the file.
func (f folder) Drop(_ context.Context, id ID) error {
	err := os.Remove(f.Where(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = atomicfile.Sync(string(f))
	}
	return err
}

// All reads all files. A file without the suffix is the rest of an interrupted Put, before the change
// was made.
func (f folder) All(context.Context) (map[ID][]byte, error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records of changed hosts: %w", err)
	}
	all := map[ID][]byte{}
	var errs []error
	for _, e := range entries {
		id, isRecord := strings.CutSuffix(e.Name(), suffix)
		if !isRecord {
			continue // a crash came while it was written: nothing was changed yet
		}
		doc, err := os.ReadFile(f.Where(ID(id)))
		switch {
		case err == nil:
			all[ID(id)] = doc
		case !errors.Is(err, fs.ErrNotExist): // a missing file was removed meanwhile
			errs = append(errs, fmt.Errorf("read record: %w", err))
		}
	}
	return all, errors.Join(errs...)
}
