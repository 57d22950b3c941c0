package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"time"
)

// writeArchive writes the tar.gz of a program.
func (w *artefacts) writeArchive(p program, arch string, files []file) {
	folder := fmt.Sprintf("%s-%s-linux-%s", p.name, w.version, arch)
	var members []member
	for _, f := range files {
		if f.archived != "" {
			members = append(members, member{name: path.Join(folder, f.archived), mode: int64(f.mode), content: f.content})
		}
	}
	w.createFile(folder+".tar.gz", func(out io.Writer) error {
		compressed := gzip.NewWriter(out)
		if err := writeTar(compressed, members, w.date); err != nil {
			return err
		}
		return compressed.Close()
	})
}

// A member is a file or, if its name ends with a slash, a folder of a tar archive.
type member struct {
	name    string // path
	mode    int64  // permissions
	owner   int    // user and group
	content []byte // content of a file
}

// writeTar writes a tar archive with sorted members, all of the same time.
func writeTar(out io.Writer, members []member, date time.Time) error {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	t := tar.NewWriter(out)
	for _, m := range members {
		kind := byte(tar.TypeReg)
		if m.name[len(m.name)-1] == '/' {
			kind = tar.TypeDir
		}
		header := &tar.Header{Typeflag: kind, Name: m.name, Mode: m.mode, Uid: m.owner, Gid: m.owner, Size: int64(len(m.content)), ModTime: date, Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(m.content); err != nil {
			return err
		}
	}
	return t.Close()
}
