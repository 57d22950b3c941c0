package extwrite

import (
	"fmt"

	"github.com/decamp/decamp/internal/fault"
)

// ReadFile returns the content of the file at path; links are followed within the file system. The
// error is fault.NotFound (and fs.ErrNotExist) if it does not exist, and fault.Unsupported if it is
// not a regular file or has more than limit bytes.
func (fs *FS) ReadFile(path string, limit int64) ([]byte, error) {
	n, err := fs.paths.resolvePath(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !n.hasType(modeFile) {
		return nil, fault.New(fault.Unsupported, "%s is not a regular file", path)
	}
	if n.size() > limit {
		return nil, fault.New(fault.Unsupported, "%s has %d bytes, %d are read at most", path, n.size(), limit)
	}
	data, err := fs.maps.readContent(n, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Size returns the size of the file at path in bytes.
func (fs *FS) Size(path string) (int64, error) {
	n, err := fs.paths.resolvePath(path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n.size(), nil
}

// Names returns the names in the folder at path, without "." and "..", in the order of the disk.
func (fs *FS) Names(path string) (names []string, err error) {
	n, err := fs.paths.resolvePath(path)
	if err == nil {
		err = fs.folders.eachBlock(n, func(_ int64, _ []byte, list []entry) (bool, error) {
			for _, e := range list {
				if e.inode != 0 && e.name != "." && e.name != ".." {
					names = append(names, e.name)
				}
			}
			return false, nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return names, nil
}

// Readlink returns the target of the symbolic link at path. Other kinds of files are an error.
func (fs *FS) Readlink(path string) (string, error) {
	folder, name, err := fs.paths.resolveParent(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	num, err := fs.folders.lookUp(folder, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	n, err := fs.inodes.readInode(num)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !n.hasType(modeLink) {
		return "", fault.New(fault.Unsupported, "%s is not a symbolic link", path)
	}
	return fs.paths.readTarget(n)
}
