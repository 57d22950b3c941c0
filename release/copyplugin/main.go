// Command copyplugin copies a file into a folder. It is the program of the image nbdkit-plugin-nfc, which Forklift
// starts as an init container: the image has no shell.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: copyplugin FILE FOLDER")
		os.Exit(2)
	}
	if err := copyFile(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "copyplugin: %v\n", err)
		os.Exit(1)
	}
}

// copyFile copies a file into a folder, where all users can read and execute it.
func copyFile(name, folder string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, filepath.Base(name)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it does not exist after a success
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Chmod(0o755); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(folder, filepath.Base(name)))
}
