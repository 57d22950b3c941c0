package extwrite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// model is the expected content of a file system after a sequence of calls.
type model struct {
	files   map[string][]byte
	folders []string
	rng     *rand.Rand
}

// After a random sequence of calls the files match the model. e2fsck finds no errors, even if the file system is full.
func TestRandomSequences(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for i, f := range mainForms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.size = "20M"
			if i%2 == 1 {
				f.size = "12M" // becomes full
			}
			fs := openImage(t, f.makeImage(t, seedTree(t)))
			m := &model{files: map[string][]byte{}, folders: []string{"/etc", "/boot"}, rng: rand.New(rand.NewPCG(7, uint64(i)))}
			for step := range 400 {
				if err := m.runStep(fs.FS); err != nil && !fault.Is(err, fault.Full) {
					t.Fatalf("step %d: %v", step, err)
				}
				if step%100 == 99 {
					fs.checkClean(t)
				}
			}
			for path, want := range m.files {
				got, err := fs.ReadFile(path, 1<<30)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, want %d: %v", path, len(got), len(want), err)
				}
			}
		})
	}
}

// runStep applies a random call to the file system and the model. A failed call does not change the model.
func (m *model) runStep(fs *FS) error {
	path := fmt.Sprintf("%s/file %d", m.folders[m.rng.IntN(len(m.folders))], m.rng.IntN(12))
	data := make([]byte, m.rng.IntN(1<<m.rng.IntN(20)))
	for i := range data {
		data[i] = byte(m.rng.Uint32())
	}
	old, there := m.files[path]
	switch choice := m.rng.IntN(10); {
	case choice == 0:
		folder := fmt.Sprintf("%s/folder %d", m.folders[m.rng.IntN(len(m.folders))], len(m.folders))
		if err := fs.Mkdir(folder, Attr{Mode: 0o755}); err != nil {
			return err
		}
		m.folders = append(m.folders, folder)
	case choice < 6 && there:
		if err := fs.AppendFile(path, data); err != nil {
			return err
		}
		m.files[path] = append(old, data...)
	default:
		if err := fs.WriteFile(path, data, Attr{Mode: 0o644}); err != nil {
			return err
		}
		m.files[path] = data
	}
	return nil
}
