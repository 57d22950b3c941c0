// Package repository finds the folders of this repository in tests.
package repository

import (
	"errors"
	"os"
	"path/filepath"
)

// Root returns the nearest folder with a go.mod at or above the working directory, which is the folder of the
// package in a test.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
	}
}

// SharedFolder returns the folder of files that test packages share, build/test, and creates it.
func SharedFolder() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, "build", "test")
	return folder, os.MkdirAll(folder, 0o755)
}
