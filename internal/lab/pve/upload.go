package pve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

var (
	// the only accepted form of a part's header; groups: field name, file name
	partHeader = regexp.MustCompile(`^Content-Disposition: form-data; name="([^"]+)"(?:; filename="([^"]+)")?\r\n(?:Content-Type: [^\r\n]*\r\n)?\r\n$`)
	// file names that the content type import accepts
	uploadName = regexp.MustCompile(`^[a-zA-Z0-9\-.+=_]+\.(ova|qcow2|raw|vmdk)$`)
)

// uploadFile receives a file. As in pveproxy, the whole body is written to a temporary file before
// permissions are checked.
func uploadFile(c *call) (any, error) {
	if c.request.ContentLength <= 0 { // chunked bodies were refused before
		return nil, newRefusal(http.StatusBadRequest, "Content-Length required")
	}
	u, err := c.receiveUpload()
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	if err != nil {
		return nil, err
	}
	upid, err := c.acceptUpload(u)
	if err != nil {
		os.Remove(u.temporary)
		return nil, err
	}
	return upid, nil
}

// An uploaded is a received file with the fields before it.
type uploaded struct {
	temporary string            // path of the received file; empty until the file part begins
	name      string            // file name of the part; empty until the file is complete
	size      int64             // length of the file in bytes
	fields    map[string]string // form fields by name
}

// receiveUpload parses the body as strictly as pveproxy: each header in one form, fields first, the
// file last. Parts after the file are discarded. On error no temporary file remains.
func (c *call) receiveUpload() (*uploaded, error) {
	_, params, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, newRefusal(http.StatusNotImplemented, "for data too large")
	}
	body := io.Reader(c.request.Body)
	if after, ok := c.nextCut(); ok {
		body = io.MultiReader(io.LimitReader(body, after), brokenReader{})
	}
	r := bufio.NewReaderSize(body, 64<<10)
	u := &uploaded{fields: map[string]string{}}
	mark := "--" + params["boundary"] + "\r\n"
	if line, err := r.ReadString('\n'); err != nil || line != mark {
		return nil, newRefusal(http.StatusBadRequest, "upload: no boundary at the start")
	}
	end := "\r\n--" + params["boundary"]
	for u.name == "" { // until the file is complete
		if err := c.readPart(r, u, end); err != nil {
			if u.temporary != "" {
				os.Remove(u.temporary)
			}
			return nil, err
		}
	}
	_, err = io.Copy(io.Discard, r) // parts after the file are ignored
	return u, err
}

// brokenReader fails each read with errCut, as a lost connection does.
type brokenReader struct{}

// errCut is the error of an upload that Faults.Cuts ends.
var errCut = errors.New("connection lost")

// Read returns errCut.
func (brokenReader) Read([]byte) (int, error) { return 0, errCut }

// readPart reads a field into u.fields, or the file into a temporary file. end is the delimiter after
// the part.
func (c *call) readPart(r *bufio.Reader, u *uploaded, end string) error {
	var header strings.Builder
	for !strings.HasSuffix(header.String(), "\r\n\r\n") {
		line, err := r.ReadString('\n')
		if err != nil || header.Len() > 4096 {
			return newRefusal(http.StatusBadRequest, "upload: a part's header has no end")
		}
		header.WriteString(line)
	}
	m := partHeader.FindStringSubmatch(header.String())
	if m == nil {
		return newRefusal(http.StatusNotImplemented, "for data too large") // Proxmox's answer to unsupported parts
	}
	if m[2] == "" { // a field: the part has no file name
		var value bytes.Buffer
		if _, err := copyUntil(&value, r, end); err != nil || value.Len() > 4096 {
			return newRefusal(http.StatusBadRequest, "upload: field %s has no end", m[1])
		}
		u.fields[m[1]] = value.String()
		_, err := r.ReadString('\n')
		return err
	}
	if m[1] != "filename" {
		return newRefusal(http.StatusBadRequest, "upload: the file must be called filename")
	}
	return c.saveFile(r, u, m[2], end)
}

// saveFile writes the file part to a new temporary file. With Faults.Garble it changes one byte in the
// middle.
func (c *call) saveFile(r *bufio.Reader, u *uploaded, name, end string) error {
	tag := make([]byte, 16)
	_, _ = rand.Read(tag) // never fails
	u.temporary = filepath.Join(c.config.Dir, "tmp", "pveupload-"+hex.EncodeToString(tag))
	f, err := os.Create(u.temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	u.size, err = copyUntil(f, r, end)
	if err != nil {
		return err
	}
	c.mu.Lock()
	garble := c.faults.Garble
	c.mu.Unlock()
	if garble && u.size > 0 { // Faults.Garble
		if _, err := f.WriteAt([]byte{0xa5}, u.size/2); err != nil {
			return err
		}
	}
	u.name = name
	return f.Close()
}

// copyUntil copies the bytes before end to w and consumes end. It fails if the body ends before.
func copyUntil(w io.Writer, r *bufio.Reader, end string) (n int64, err error) {
	for {
		window, err := r.Peek(r.Size())
		if len(window) < len(end) {
			return n, fmt.Errorf("the body ends early: %w", err)
		}
		take := len(window) - len(end) + 1 // the rest of the window may be the beginning of end
		at := bytes.Index(window, []byte(end))
		if at >= 0 {
			take = at
		}
		if _, err := w.Write(window[:take]); err != nil {
			return n, err
		}
		n += int64(take)
		_, _ = r.Discard(take) // the bytes were peeked
		if at >= 0 {
			_, _ = r.Discard(len(end))
			return n, nil
		}
	}
}

// acceptUpload checks permissions, storage, file name and checksum algorithm, and starts the task that
// imports the file. It returns the UPID.
func (c *call) acceptUpload(u *uploaded) (string, error) {
	st, err := c.findStorage(c.args[0])
	if err != nil {
		return "", err
	}
	if err := c.token.requireAll("/storage/"+st.ID, "Datastore.AllocateTemplate"); err != nil {
		return "", err
	}
	if !st.hasFiles() {
		return "", serverError("can't upload to storage type '%s'", st.Type)
	}
	content := u.fields["content"]
	if content != "import" {
		return "", refuseParameter("content", "property is missing and it is not optional")
	}
	if !uploadName.MatchString(u.name) {
		return "", refuseParameter("filename", "invalid filename or wrong extension")
	}
	if !slices.Contains(st.Content, content) {
		return "", serverError("storage '%s' does not support '%s' content", st.ID, content)
	}
	if algorithm := u.fields["checksum-algorithm"]; algorithm != "" && algorithm != "sha256" {
		return "", refuseParameter("checksum-algorithm", "the emulator supports sha256 only")
	}
	return c.startTask("imgcopy", "", func(ctx context.Context, t *task) error {
		defer os.Remove(u.temporary)
		return c.copyIn(ctx, t, st, u)
	}), nil
}

// copyIn verifies checksum, format and free space, and then moves the temporary file into the storage.
func (s *Server) copyIn(ctx context.Context, t *task, st Storage, u *uploaded) error {
	t.logf("starting file import from: %s", u.temporary)
	if t.broken != nil {
		return t.broken
	}
	if want := u.fields["checksum"]; want != "" {
		got, err := hashFile(u.temporary)
		if err != nil {
			return err
		}
		if !strings.EqualFold(got, want) {
			t.logf("calculating checksum...")
			return fmt.Errorf("checksum mismatch: got '%s' != expect '%s'", got, want)
		}
		t.logf("calculating checksum...OK, checksum verified")
	}
	if _, err := checkUntrusted(ctx, u.temporary, strings.TrimPrefix(filepath.Ext(u.name), ".")); err != nil {
		return err
	}
	if err := s.checkSpace(st, allocatedBytes(u.temporary)); err != nil {
		return errors.New("import failed: cp: error writing: No space left on device")
	}
	target := filepath.Join(s.config.Dir, st.ID, "import", u.name)
	t.logf("target file: %s", target)
	t.logf("file size is: %d", u.size)
	return os.Rename(u.temporary, target)
}

// hashFile returns the SHA-256 of a file in hex.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// allocatedBytes returns the disk space of a file in bytes; 0 if it does not exist. Sparse files count
// by their data.
func allocatedBytes(path string) int64 {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512 // st_blocks counts 512 bytes, see stat(2)
}
