#!/bin/sh
# Makes the certificates of a fleet in a directory, with openssl (3.0 or later):
#     sh deploy/certificates.sh DIR BROKER_HOST coordinator z1 z2 z3 watch
# watch is who may see how the fleet is (hushgrid status) and writes nothing.
# ca.key signs new devices: keep it off every machine of the fleet. Run it again to add names; what is there is kept.
set -eu
umask 077

[ $# -ge 3 ] || { echo "usage: sh deploy/certificates.sh DIR BROKER_HOST NAME..." >&2; exit 2; }
dir=$1 host=$2
shift 2
mkdir -p "$dir"
cd "$dir"

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

# sign NAME DAYS "EXTENSIONS": a certificate whose common name is NAME, by the fleet's own authority.
sign() {
    [ ! -e "$1.crt" ] || return 0
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    printf '%s\n' "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" \
        "subjectKeyIdentifier=hash" "authorityKeyIdentifier=keyid" "$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$2" -sha256 \
        -extfile "$1.ext" -out "$1.crt" 2>/dev/null
    rm "$1.csr" "$1.ext"
}

if [ ! -e ca.crt ]; then
    key ca
    printf '%s\n' "[req]" "distinguished_name=dn" "x509_extensions=ca" "prompt=no" "[dn]" "CN=hushgrid fleet" \
        "[ca]" "basicConstraints=critical,CA:TRUE,pathlen:0" "keyUsage=critical,keyCertSign,cRLSign" \
        "subjectKeyIdentifier=hash" >ca.cnf
    openssl req -new -x509 -key ca.key -days 3650 -sha256 -config ca.cnf -out ca.crt
    rm ca.cnf
fi

# The broker is checked by the name in its URL; a numeric address is another kind of name.
case $host in
*:*) san=IP:$host ;;
*[!0-9.]*) san=DNS:$host ;;
*) san=IP:$host ;;
esac
sign broker 825 "extendedKeyUsage=serverAuth
subjectAltName=$san"
for name; do
    sign "$name" 825 "extendedKeyUsage=clientAuth"
done
