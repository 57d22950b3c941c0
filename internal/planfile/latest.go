package planfile

import "sync"

// latest is the last plan that was parsed without errors. Several parts of a process parse the same
// plan before its first VM is migrated: the command, the record, the scheduler and the mover. A parse
// of 10,000 entries takes 0.1 s and makes 60 MB of garbage.
var latest struct {
	mu   sync.Mutex
	text string
	file *File
}

// latestFile returns a copy of the latest file if it has that text; otherwise nil. Nested values are
// shared and must not be changed.
func latestFile(text []byte) *File {
	latest.mu.Lock()
	defer latest.mu.Unlock()
	if latest.file == nil || latest.text != string(text) {
		return nil
	}
	file := *latest.file
	return &file
}

// storeLatest replaces the latest file. It stores a copy of the struct, not of nested values.
func storeLatest(text []byte, file *File) {
	kept := *file
	latest.mu.Lock()
	defer latest.mu.Unlock()
	latest.text, latest.file = string(text), &kept
}
