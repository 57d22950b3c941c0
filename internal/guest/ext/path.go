package ext

import (
	"fmt"
	"strings"
)

const (
	maxLinks = 8       // symbolic links on one path
	maxDir   = 4 << 20 // bytes of a folder that are searched
	maxPath  = 4096    // bytes of a path with its links resolved
)

// ReadFile returns the file at path, which starts at the root of the file system. Links are followed
// within it. The error is ErrNotFound if the file does not exist. A file of more than limit bytes is an
// error.
func (fs *FS) ReadFile(path string, limit int64) ([]byte, error) {
	fs.reads = 0
	num, err := fs.resolve(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n, err := fs.inode(num)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !n.is(modeFile) {
		return nil, fmt.Errorf("%s: no regular file", path)
	}
	data, err := fs.content(n, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// resolve walks path and returns the number of its inode.
func (fs *FS) resolve(path string) (uint32, error) {
	trail := []uint32{rootInode} // the folders walked through, for ".."
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
		num, target, err := fs.step(trail[len(trail)-1], name)
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

// step looks name up in a folder. For a symbolic link it returns the link's target.
func (fs *FS) step(dir uint32, name string) (num uint32, target string, err error) {
	folder, err := fs.inode(dir)
	if err != nil {
		return 0, "", err
	}
	if !folder.is(modeDir) {
		return 0, "", ErrNotFound
	}
	num, err = fs.find(folder, name)
	if err != nil {
		return 0, "", err
	}
	n, err := fs.inode(num)
	if err != nil || !n.is(modeLink) {
		return num, "", err
	}
	target, err = fs.link(n)
	return num, target, err
}

// link returns where a symbolic link points; short targets stand in the inode itself.
func (fs *FS) link(n *inode) (string, error) {
	if n.size < int64(len(n.where)) {
		if n.size == 0 {
			return "", fmt.Errorf("a symbolic link to nowhere")
		}
		return string(n.where[:n.size]), nil
	}
	target, err := fs.content(n, maxPath)
	return string(target), err
}

// find searches a folder for name. Folders with a hash index read as plain lists too.
func (fs *FS) find(folder *inode, name string) (uint32, error) {
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

// findIn searches one block of a folder; 0 means that name is not in it.
func findIn(list []byte, name string) (uint32, error) {
	for len(list) >= 8 {
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
