package dir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// storageName is the file with the ID of a folder's storage.
const storageName = ".decamp-storage"

// storageID matches the file's content: the output of rand.Text and a newline.
var storageID = regexp.MustCompile(`^[A-Z2-7]{26}\n$`)

// StorageID returns the ID of the storage that contains folder. It creates a missing ID.
// Machines that
// read the same ID share the storage, even if the paths differ.
func StorageID(folder string) (string, error) {
	path := filepath.Join(folder, storageName)
	id, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = newStorageID(folder); err == nil {
			id, err = os.ReadFile(path)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fault.New(fault.NotFound, "folder %s does not exist", folder).WithHint("create it, or mount its file system")
	case err != nil:
		return "", fault.New(fault.Denied, "identify the storage of %s: %w", folder, err).WithHint("make the folder writable for decamp")
	case !storageID.Match(id):
		return "", fault.New(fault.Corrupt, "%s has invalid content", path).
			WithHint("delete it while no migration to the folder runs: decamp creates a new one for all machines that share the folder")
	}
	return string(id[:len(id)-1]), nil
}

// newStorageID writes an ID. If several processes do so at the same time, all read the same ID
// afterwards,
// because only the first link(2) succeeds.
func newStorageID(folder string) error {
	draft := filepath.Join(folder, storageName+"."+rand.Text())
	if err := atomicfile.Replace(draft, []byte(rand.Text()+"\n"), 0o644); err != nil {
		return err
	}
	defer os.Remove(draft) // a remaining draft is harmless
	if err := os.Link(draft, filepath.Join(folder, storageName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write %s: %w", storageName, err)
	}
	return atomicfile.Sync(folder)
}
