package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// certAge is the validity of a certificate that the server creates. Clients pin it by its fingerprint,
// so a renewal would cause a warning.
const certAge = 10 * 365 * 24 * time.Hour

// tlsConfig returns the TLS configuration of the listener, and the SHA-256 fingerprint of its
// certificate. Without configured files, the server creates a certificate in the state directory.
func tlsConfig(c Config) (*tls.Config, string, error) {
	cert, err := loadCertificate(c)
	if err != nil {
		return nil, "", err
	}
	conf := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if c.ClientCA != "" {
		if conf.ClientCAs, err = readPool(c.ClientCA); err != nil {
			return nil, "", err
		}
		conf.ClientAuth = tls.VerifyClientCertIfGiven // tokens do, too
	}
	return conf, Fingerprint(cert.Certificate[0]), nil
}

// loadCertificate returns the configured certificate, or the one in the state directory.
func loadCertificate(c Config) (tls.Certificate, error) {
	if c.Cert != "" || c.Key != "" {
		cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return cert, fault.New(fault.Invalid, "certificate of the server: %w", err).WithHint("--tls-cert and --tls-key name PEM files that belong together")
		}
		return cert, nil
	}
	return ownCertificate(filepath.Join(c.State, "tls.pem"))
}

// Fingerprint returns the SHA-256 hash of a certificate in the form that users compare: AB:CD:…
func Fingerprint(der []byte) string {
	var parts []string
	for _, b := range sha256.Sum256(der) {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	return strings.Join(parts, ":")
}

// readPool reads the CA certificates of clients from a PEM file.
func readPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.NotFound, "CA of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fault.New(fault.Invalid, "%s has no certificate", path).WithHint("it holds the CA that signs the clients' certificates, in PEM")
	}
	return pool, nil
}

// ownCertificate reads the certificate that the server created, or creates one. Key and certificate are
// in one file, so that either both exist or none.
func ownCertificate(path string) (tls.Certificate, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = newCertificate(); err == nil {
			err = atomicfile.Replace(path, text, 0o600)
		}
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		return cert, fault.New(fault.Corrupt, "%s: %w", path, err).WithHint("remove it; clients have to accept the new fingerprint")
	}
	return cert, nil
}

// newCertificate returns a new self-signed certificate and its ECDSA key, as PEM.
func newCertificate() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := ownTemplate(time.Now())
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), nil
}

// ownTemplate returns the template of a certificate with the host name and all addresses of this
// machine.
func ownTemplate(now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "decamp"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(certAge), // clocks of clients may be behind
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if host, err := os.Hostname(); err == nil {
		t.DNSNames = append(t.DNSNames, host)
	}
	addrs, _ := net.InterfaceAddrs() // without them it is known by its names
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			t.IPAddresses = append(t.IPAddresses, n.IP)
		}
	}
	return t, nil
}
