package ext

import (
	"fmt"
	"strings"
)

const (
	maxLinks = 8       // symbolic links followed in one path
	maxDir   = 4 << 20 // bytes of a folder that are searched
	maxPath  = 4096    // bytes of a path with its links resolved
)

// ReadFile returns the content of the file at path, which starts at the root of the file system. Links
// are followed within it. The error is ErrNotFound if the file does not exist. ReadFile fails if the
// file exceeds limit bytes.
func (fs *FS) ReadFile(path string, limit int64) ([]byte, error) {
	fs.reads = 0
	num, err := fs.resolvePath(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n, err := fs.readInode(num)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !n.hasType(modeFile) {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	data, err := fs.readContent(n, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// resolvePath returns the inode number of path, with all links followed.
func (fs *FS) resolvePath(path string) (uint32, error) {
	trail := []uint32{rootInode} // folders from the root to the current one, for ".."
	links := 0
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			trail = trail[:max(1, len(trail)-1)]
			continue
		}
		// The trail has only folders and the last file.
		num, target, err := fs.enterName(trail[len(trail)-1], name)
		if err != nil {
			return 0, err
		}
		if target == "" {
			trail = append(trail, num)
			continue
		}
		if links++; links > maxLinks || len(target)+len(path) > maxPath {
			return 0, fmt.Errorf("more than %d symbolic links, or a path too long", maxLinks)
		}
		if target[0] == '/' {
			trail = trail[:1]
		}
		path = target + "/" + path
	}
	return trail[len(trail)-1], nil
}

// enterName returns the inode of a name in the folder dir. target is the target of a symbolic link and
// empty otherwise.
func (fs *FS) enterName(dir uint32, name string) (num uint32, target string, err error) {
	folder, err := fs.readInode(dir)
	if err != nil {
		return 0, "", err
	}
	if !folder.hasType(modeDir) {
		return 0, "", ErrNotFound
	}
	num, err = fs.findName(folder, name)
	if err != nil {
		return 0, "", err
	}
	n, err := fs.readInode(num)
	if err != nil || !n.hasType(modeLink) {
		return num, "", err
	}
	target, err = fs.readLink(n)
	return num, target, err
}

// readLink returns the target of a symbolic link. Targets of less than 60 bytes are in the inode.
func (fs *FS) readLink(n *inode) (string, error) {
	// A short link has no block; its target is in the block area.
	if n.size < int64(len(n.blockArea)) {
		if n.size == 0 {
			return "", fmt.Errorf("a symbolic link to nowhere")
		}
		return string(n.blockArea[:n.size]), nil
	}
	target, err := fs.readContent(n, maxPath)
	return string(target), err
}

// findName returns the inode of a name in a folder, or ErrNotFound. It searches linearly, because a
// folder with a hash tree is valid as a plain list.
func (fs *FS) findName(folder *inode, name string) (uint32, error) {
	for i := int64(0); i*fs.blockSize < min(folder.size, maxDir); i++ {
		list, err := fs.fileBlock(folder, i)
		if err != nil {
			return 0, err
		}
		if err := fs.r.Budget().Step(int64(len(list)) >> 8); err != nil {
			return 0, err
		}
		num, err := findIn(list, name)
		if num != 0 || err != nil {
			return num, err
		}
	}
	return 0, ErrNotFound
}

// findIn returns the inode of a name in one block of a folder; 0 if the block does not contain it.
func findIn(list []byte, name string) (uint32, error) {
	for len(list) >= 8 {
		// Entry: inode, distance to the next entry, length of the name, type, name.
		num, length, nameLen := le32(list, 0), int(le16(list, 4)), int(list[6])
		if length < 8 || length > len(list) || 8+nameLen > length {
			return 0, fmt.Errorf("a folder entry of %d bytes with a name of %d", length, nameLen)
		}
		if num != 0 && string(list[8:8+nameLen]) == name {
			return num, nil
		}
		list = list[length:]
	}
	return 0, nil
}
