package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"aead.dev/minisign"
)

const (
	sumsName      = "SHA256SUMS"
	signatureName = "SHA256SUMS.minisig"
)

const (
	keyVariable      = "DECAMP_MINISIGN_KEY"      // content of the secret key file of minisign -G
	passwordVariable = "DECAMP_MINISIGN_PASSWORD" // password of that key
)

// writeSums writes the checksums of all artefacts, signs them and lists them. It returns the first error of any artefact.
func (w *artefacts) writeSums() error {
	var sums bytes.Buffer
	slices.Sort(w.names)
	for _, name := range w.names {
		if w.err != nil {
			break
		}
		content, err := os.ReadFile(filepath.Join(w.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		fmt.Fprintf(w.log, "%7.1f MB  %s\n", float64(len(content))/1e6, name)
	}
	w.writeFile(sumsName, sums.Bytes())
	if w.err != nil {
		return w.err
	}
	key := os.Getenv(keyVariable)
	if key == "" {
		w.warn("%s is not set: the checksums are not signed", keyVariable)
		return nil
	}
	signature, err := w.signSums(sums.Bytes(), key, os.Getenv(passwordVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", keyVariable, err)
	}
	w.writeFile(signatureName, signature)
	return w.err
}

// signSums returns the minisign signature of the checksums. The trusted comment contains the version, so that the
// signature of another release is recognised.
func (r *release) signSums(sums []byte, key, password string) ([]byte, error) {
	var private minisign.PrivateKey
	var err error
	if minisign.IsEncrypted([]byte(key)) {
		private, err = minisign.DecryptKey(password, []byte(key))
	} else {
		err = private.UnmarshalText([]byte(key))
	}
	if err != nil {
		return nil, err
	}
	reader := minisign.NewReader(bytes.NewReader(sums))
	if _, err := bytes.NewBuffer(nil).ReadFrom(reader); err != nil {
		return nil, err
	}
	return reader.SignWithComments(private, fmt.Sprintf("decamp %s", r.version), "signature of "+sumsName), nil
}
