package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageUser = 65532             // user and group of the programs in images
	imageHome = "/var/lib/decamp" // state directory in images
)

// writeImage writes the OCI image of a program for all architectures, as one archive with an OCI layout.
func (w *artefacts) writeImage(p program, in *inputs, content []file) {
	w.createFile(fmt.Sprintf("%s-%s-oci.tar", p.name, w.version), func(out io.Writer) error {
		index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
		for _, arch := range architectures {
			image, err := w.buildImage(p, arch, append(executables(p, in.binaries[arch]), content...))
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		return writeLayout(out, index, w.release)
	})
}

// copier is the program of the plugin's image. It copies the plugin to /opt, where Forklift expects it.
const copier = "copyplugin"

// executables returns the programs of an image, and the plugin.
func executables(p program, binaries map[string][]byte) []file {
	files := []file{binaryFile(p, binaries[p.name])}
	if p.plugin {
		files[0].installed = "/usr/share/" + p.name + "/" + pluginFile
		files = append(files, file{"", "/usr/bin/" + copier, 0o755, binaries[copier]})
	}
	return files
}

// buildImage returns the image of a program for one architecture: one layer on top of nothing.
func (r *release) buildImage(p program, arch string, content []file) (v1.Image, error) {
	var layer bytes.Buffer
	if err := writeTar(&layer, imageMembers(content), r.date); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.date}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: l, History: v1.History{Created: created, CreatedBy: "decamp release", Comment: p.name}})
	if err != nil {
		return nil, err
	}
	config := v1.Config{
		User: fmt.Sprintf("%d:%d", imageUser, imageUser), Entrypoint: []string{"/usr/bin/" + p.name}, WorkingDir: imageHome,
		Env:    []string{"PATH=/usr/bin", "HOME=" + imageHome, "XDG_STATE_HOME=" + path.Dir(imageHome)},
		Labels: r.imageLabels(p),
	}
	if p.name == "decamp" {
		config.Volumes = map[string]struct{}{imageHome: {}}
	}
	if p.plugin {
		config.Entrypoint = []string{"/usr/bin/" + copier, "/usr/share/" + p.name + "/" + pluginFile, "/opt"}
	}
	configured, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	configured.Architecture, configured.OS, configured.Created, configured.Config = arch, "linux", created, config
	return mutate.ConfigFile(image, configured)
}

// imageLabels returns the standard labels of an image.
func (r *release) imageLabels(p program) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": p.name, prefix + "description": p.summary, prefix + "version": r.version, prefix + "licenses": "Apache-2.0",
		prefix + "source": homepage, prefix + "created": r.date.Format("2006-01-02T15:04:05Z"),
	}
}

// imageMembers returns the content of an image: the files of the package without completions, manuals and units,
// certificates of public authorities, a user, and folders that the user may write to.
func imageMembers(content []file) []member {
	folders := map[string]member{"tmp/": {"tmp/", 0o1777, 0, nil}, "var/lib/decamp/": {"var/lib/decamp/", 0o700, imageUser, nil}}
	members := []member{
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0::/:/\ndecamp:x:%d:%d::%s:/\n", imageUser, imageUser, imageHome)},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\ndecamp:x:%d:\n", imageUser)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, rootCertificates()},
	}
	for _, f := range content {
		if strings.HasPrefix(f.installed, "/usr/bin/") || strings.HasPrefix(f.installed, "/usr/share/doc/") || path.Base(f.installed) == pluginFile {
			members = append(members, member{f.installed[1:], int64(f.mode), 0, f.content})
		}
	}
	for _, m := range slices.Clone(members) {
		for d := path.Dir(m.name); d != "."; d = path.Dir(d) {
			folders[d+"/"] = member{d + "/", 0o755, 0, nil}
		}
	}
	for _, d := range []string{"var/", "var/lib/"} {
		folders[d] = member{d, 0o755, 0, nil}
	}
	for _, m := range folders {
		members = append(members, m)
	}
	return members
}

// rootCertificates returns the authorities that Mozilla trusts, of the version in go.mod, in PEM format.
func rootCertificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer does not fail
		}
	}
	return b.Bytes()
}

// writeLayout writes an OCI layout with one index as a tar archive.
func writeLayout(out io.Writer, index v1.ImageIndex, r *release) error {
	folder, err := os.MkdirTemp("", "decamp-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	l, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return err
	}
	var members []member
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == folder {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			members = append(members, member{relative + "/", 0o755, 0, nil})
			return nil
		}
		content, err := os.ReadFile(name)
		members = append(members, member{relative, 0o644, 0, content})
		return err
	})
	if err != nil {
		return err
	}
	return writeTar(out, members, r.date)
}
