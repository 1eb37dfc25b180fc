#!/bin/sh
# Makes certificates/ beside this file: a CA, and what it vouches for, each with its key. For trying things out only.
#
#   broker.pem      the broker's key and certificate in one file, for localhost
#   sluice.*        the proxy's, for localhost
#   alice.*, mallory.*   clients'; alice.pem is hers in one file, for Java's clients
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p certificates
cd certificates
new_key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

# shellcheck disable=SC2086  # several words are meant
openssl req -x509 $new_key -keyout ca.key -out ca.crt -days 365 -subj "/CN=Examples CA" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null

certificate() { # NAME SUBJECT EXTENSION
  # shellcheck disable=SC2086
  openssl req $new_key -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  printf '%s\n' "$3" subjectKeyIdentifier=hash authorityKeyIdentifier=keyid > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -days 365 -out "$1.crt" -extfile "$1.ext" 2>/dev/null
  cat "$1.key" "$1.crt" > "$1.pem"
  rm "$1.csr" "$1.ext"
}

certificate broker "/CN=broker" "subjectAltName=DNS:localhost,IP:127.0.0.1"
certificate sluice "/CN=sluice" "subjectAltName=DNS:localhost,IP:127.0.0.1"
certificate alice "/O=Example/OU=Payments/CN=alice" "extendedKeyUsage=clientAuth"
certificate mallory "/O=Example/OU=Visitors/CN=alice" "extendedKeyUsage=clientAuth"
