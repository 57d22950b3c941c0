package planfile

import "sync"

// latest is the plan that was parsed last, and found right. Whoever carries one out has it parsed
// by each who reads it (the command, the record, the scheduler, the mover), one after the other
// before its first VM moves: 10,000 entries take 0.1 s and 60 MB of garbage each time.
var latest struct {
	mu   sync.Mutex
	text string
	file *File
}

// latestFile returns a copy of the latest file if it has that text. Nested values are shared and must not
// be changed.
func latestFile(text []byte) *File {
	latest.mu.Lock()
	defer latest.mu.Unlock()
	if latest.file == nil || latest.text != string(text) {
		return nil
	}
	file := *latest.file
	return &file
}

func storeLatest(text []byte, file *File) {
	kept := *file
	latest.mu.Lock()
	defer latest.mu.Unlock()
	latest.text, latest.file = string(text), &kept
}
