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

// storageName is the file that tells a folder's storage from every other.
const storageName = ".decamp-storage"

var storageID = regexp.MustCompile(`^[A-Z2-7]{26}\n$`)

// StorageID returns the id of the storage behind a folder, and gives it one if it has none. Two
// machines that find the same id see the same files, whatever they call the folder.
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
		return "", fault.New(fault.NotFound, "there is no folder %s", folder).WithHint("make it, or mount what is to be there")
	case err != nil:
		return "", fault.New(fault.Denied, "tell the storage of %s: %w", folder, err).WithHint("decamp has to be able to write there")
	case !storageID.Match(id):
		return "", fault.New(fault.Corrupt, "%s is not what decamp wrote there", path).
			WithHint("while nothing is moved there, delete it: decamp writes another; machines that share the folder then see the same one")
	}
	return string(id[:len(id)-1]), nil
}

// newStorageID gives a folder an id. Of several who do so at once, all find the same one: a
// link is made by the first only.
func newStorageID(folder string) error {
	draft := filepath.Join(folder, storageName+"."+rand.Text())
	if err := atomicfile.Replace(draft, []byte(rand.Text()+"\n"), 0o644); err != nil {
		return err
	}
	defer os.Remove(draft) // one that stays is in nobody's way
	if err := os.Link(draft, filepath.Join(folder, storageName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write %s: %w", storageName, err)
	}
	return atomicfile.Sync(folder)
}
