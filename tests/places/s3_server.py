"""A strict object store with S3's API, in memory, for tests: it checks signatures, checksums of bodies and sizes of parts, and
fails on purpose. Standard library only. Prints its port; ends when its standard input does.

    s3_server.py [--page N] [--faults P --seed S] [--region R] [--think S] [--trickles N] [--no-delete-objects]

--page N      a listing has N entries at most, and a token for the rest
--think S     an upload is made whole after S seconds
--trickles N  the first N objects that are read come a byte at a time
--faults P    a request fails with probability P: 500, 503, silence, a broken connection before or after it is done, or a cut answer
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import http.server
import random
import re
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape, unescape

ACCESS_KEY, SECRET_KEY, TOKEN = 'test-key', 'test/secret+key', 'test token'
PART_BYTES_MIN = 5 << 20


class Refused(Exception):
    def __init__(self, status, code, message=''):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def encoded(text):
    return urllib.parse.quote(text, safe='-._~')


def utc(seconds):
    return datetime.datetime.utcfromtimestamp(seconds).isoformat(timespec='milliseconds') + 'Z'


def hmac256(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Store:
    def __init__(self, options):
        self.options, self.random, self.lock = options, random.Random(options.seed), threading.Lock()
        self.modified = {}  # (bucket, key) -> seconds
        self.objects, self.uploads, self.next = {}, {}, 0  # (bucket, key) -> bytes; id -> [bucket, key, begun, {part: bytes}]
        self.buckets, self.requests, self.failed = {'bucket', 'bucket.with.dots'}, 0, 0

    def fault(self):
        with self.lock:
            self.requests += 1
            if self.random.random() >= self.options.faults:
                return None
            self.failed += 1
            return self.random.choice(['500', '503', 'slow', 'reset', 'lost', 'cut'])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = 'HTTP/1.1', True, 1 << 16
    store = None

    def log_message(self, *_):
        pass

    def answer(self, status, body=b'', **headers):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        length = headers.pop('length', len(body))
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', str(length))
        self.end_headers()
        if self.trickles():
            for at in range(len(body)):
                self.wfile.write(body[at:at + 1])
                self.wfile.flush()
                time.sleep(0.1)
        elif self.command != 'HEAD':
            self.wfile.write(body[:len(body) // 2] if self.fault == 'cut' else body)
        if self.fault == 'cut' or (self.fault == 'lost' and self.command == 'HEAD'):
            self.close_connection = True

    def trickles(self):
        with self.store.lock:
            if self.command != 'GET' or '?' in self.path or self.path == '/_count' or self.store.options.trickles == 0:
                return False
            self.store.options.trickles -= 1
            return True

    def check_signature(self, url, query, body):
        """AWS's signature version 4, as its documentation has it."""
        match = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, *SignedHeaders=([^,]+), *'
                             r'Signature=([0-9a-f]{64})', self.headers.get('Authorization', ''))
        if not match:
            raise Refused(403, 'AccessDenied', 'no signature')
        key, day, region, signed, signature = match.groups()
        names, date = signed.split(';'), self.headers.get('x-amz-date', '')
        at = datetime.datetime.strptime(date, '%Y%m%dT%H%M%SZ').replace(tzinfo=datetime.timezone.utc)
        if abs(time.time() - at.timestamp()) > 900 or not date.startswith(day):
            raise Refused(403, 'RequestTimeTooSkewed')
        if key != ACCESS_KEY or self.headers.get('x-amz-security-token', TOKEN) != TOKEN:
            raise Refused(403, 'InvalidAccessKeyId', f'the key {key} does not exist')
        if region != self.store.options.region:
            raise Refused(400, 'AuthorizationHeaderMalformed', f'the region {region} is wrong')
        amz = {name.lower() for name in self.headers if name.lower().startswith('x-amz-')}
        if not {'host', 'x-amz-content-sha256', *amz} <= set(names) <= {name.lower() for name in self.headers} or names != sorted(names):
            raise Refused(403, 'AccessDenied', f'signed are only {signed}')
        payload = self.headers['x-amz-content-sha256']
        if payload != hashlib.sha256(body).hexdigest():
            raise Refused(400, 'XAmzContentSHA256Mismatch')
        canonical = '\n'.join([
            self.command, urllib.parse.quote(urllib.parse.unquote(url.path), safe='/-._~'),
            '&'.join(sorted(f'{encoded(name)}={encoded(value)}' for name, value in query)),
            *(f'{name}:{" ".join(self.headers[name].split())}' for name in names), '', signed, payload])
        scope = f'{day}/{region}/s3/aws4_request'
        text = f'AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}'
        secret = ('AWS4' + SECRET_KEY).encode()
        for part in (day, region, 's3', 'aws4_request'):
            secret = hmac256(secret, part)
        if hmac256(secret, text).hex() != signature:
            raise Refused(403, 'SignatureDoesNotMatch', canonical)

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        if url.path == '/_count':  # for tests, unsigned
            self.fault = None
            return self.answer(200, f'{self.store.requests} {self.store.failed} {len(self.store.uploads)}')
        self.fault = self.store.fault()
        if self.fault == 'slow':
            time.sleep(0.2)
        if self.fault == 'reset':
            self.close_connection = True
            return None
        try:
            if self.fault == '500':
                raise Refused(500, 'InternalError', 'injected')
            if self.fault == '503':
                raise Refused(503, 'SlowDown', 'injected')
            self.check_signature(url, query, body)
            bucket, _, key = urllib.parse.unquote(url.path)[1:].partition('/')
            if bucket not in self.store.buckets:
                raise Refused(404, 'NoSuchBucket', f'{bucket} does not exist')
            if self.command == 'POST' and 'uploadId' in dict(query):
                time.sleep(self.store.options.think)
            with self.store.lock:
                reply = self.act(bucket, key, dict(query), body)
            if self.fault == 'lost':  # done, and nobody hears of it
                self.close_connection = True
                return None
            return self.answer(*reply[:2], **(reply[2] if len(reply) > 2 else {}))
        except Refused as refused:
            return self.answer(refused.status, f'<?xml version="1.0"?><Error><Code>{refused.code}</Code>'
                               f'<Message>{escape(refused.message)}</Message></Error>')

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def act(self, bucket, key, query, body):
        store, command = self.store, self.command
        if not key and command == 'POST' and 'delete' in query:
            return self.delete_objects(bucket, body)
        if not key:
            return self.list_uploads(bucket, query) if 'uploads' in query else self.list_objects(bucket, query)
        if 'uploads' in query and command == 'POST':
            store.next += 1
            upload = f'id+/={store.next}'
            store.uploads[upload] = [bucket, key, time.time(), {}]
            return 200, f'<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>'
        if 'uploadId' in query:
            return self.act_on_upload(bucket, key, query, body)
        if command == 'PUT':
            store.objects[bucket, key], store.modified[bucket, key] = body, time.time()
            return 200, b'', {'ETag': f'"{hashlib.md5(body).hexdigest()}"'}
        if command == 'DELETE':
            store.objects.pop((bucket, key), None)
            return 204, b''
        content = store.objects.get((bucket, key))
        if content is None:
            raise Refused(404, 'NoSuchKey', key)
        if command == 'HEAD':
            return 200, b'', {'length': len(content)}
        wanted = re.fullmatch(r'bytes=(\d+)-(\d+)', self.headers.get('Range', ''))
        if not wanted:
            return 200, content
        first, last = map(int, wanted.groups())
        if first >= len(content):
            raise Refused(416, 'InvalidRange')
        return 206, content[first:last + 1], {'Content_Range': f'bytes {first}-{last}/{len(content)}'}

    def act_on_upload(self, bucket, key, query, body):
        store, upload = self.store, query['uploadId']
        if upload not in store.uploads or store.uploads[upload][:2] != [bucket, key]:
            raise Refused(404, 'NoSuchUpload', upload)
        parts = store.uploads[upload][3]
        if self.command == 'DELETE':
            del store.uploads[upload]
            return 204, b''
        if self.command == 'PUT':
            parts[int(query['partNumber'])] = body
            return 200, b'', {'ETag': f'"{hashlib.md5(body).hexdigest()}"'}
        named = re.findall(r'<Part><PartNumber>(\d+)</PartNumber><ETag>("[0-9a-f]{32}")</ETag></Part>', body.decode())
        numbers = [int(number) for number, _ in named]
        if not named or numbers != sorted(set(numbers)) or not set(numbers) <= set(parts):
            raise Refused(400, 'InvalidPart')
        if any(f'"{hashlib.md5(parts[int(n)]).hexdigest()}"' != etag for n, etag in named):
            raise Refused(400, 'InvalidPart', 'etag')
        if any(len(parts[n]) < PART_BYTES_MIN for n in numbers[:-1]):
            raise Refused(400, 'EntityTooSmall')
        store.objects[bucket, key], store.modified[bucket, key] = b''.join(parts[n] for n in numbers), time.time()
        del store.uploads[upload]
        return 200, '<CompleteMultipartUploadResult></CompleteMultipartUploadResult>'

    def delete_objects(self, bucket, body):
        if not self.store.options.delete_objects:
            raise Refused(501, 'NotImplemented')
        if self.headers.get('x-amz-checksum-sha256') != base64.b64encode(hashlib.sha256(body).digest()).decode():
            raise Refused(400, 'InvalidRequest', 'Missing required header for this request: Content-MD5 OR x-amz-checksum-*')
        keys = re.findall('<Object><Key>(.*?)</Key></Object>', body.decode(), re.DOTALL)
        if not 0 < len(keys) <= 1000:
            raise Refused(400, 'MalformedXML')
        errors = ''
        for key in map(unescape, keys):
            if 'locked' in key:
                errors += f'<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code><Message>no</Message></Error>'
            else:
                self.store.objects.pop((bucket, key), None)
                self.store.modified.pop((bucket, key), None)
        return 200, f'<?xml version="1.0"?><DeleteResult xmlns="x">{errors}</DeleteResult>'

    def list_objects(self, bucket, query):
        assert query.get('list-type') == '2'
        prefix, delimiter = query.get('prefix', ''), query.get('delimiter', '')
        found = {}
        for (of, key), content in self.store.objects.items():
            if of != bucket or not key.startswith(prefix):
                continue
            head, cut, _ = key[len(prefix):].partition(delimiter) if delimiter else (key, '', '')
            name = prefix + head + cut if cut else key
            found[name] = (f'<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>' if cut else
                           f'<Contents><Key>{escape(name)}</Key><LastModified>{utc(self.store.modified[of, key])}</LastModified>'
                           f'<Size>{len(content)}</Size></Contents>')
        names = [name for name in sorted(found) if name > query.get('continuation-token', '')]
        page, more = names[:self.store.options.page], len(names) > self.store.options.page
        token = f'<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>' if more else ''
        return 200, (f'<?xml version="1.0"?><ListBucketResult><Prefix>{escape(prefix)}</Prefix><IsTruncated>{str(more).lower()}'
                     f'</IsTruncated>{token}{"".join(found[name] for name in page)}</ListBucketResult>')

    def list_uploads(self, bucket, query):
        after = (query.get('key-marker', ''), query.get('upload-id-marker', ''))
        found = sorted((key, upload, begun) for upload, (of, key, begun, _) in self.store.uploads.items()
                       if of == bucket and key.startswith(query.get('prefix', '')) and (key, upload) > after)
        page, more = found[:self.store.options.page], len(found) > self.store.options.page
        rows = ''.join(f'<Upload><Key>{escape(key)}</Key><UploadId>{upload}</UploadId><Initiated>'
                       f'{utc(begun)}</Initiated></Upload>'
                       for key, upload, begun in page)
        markers = (f'<NextKeyMarker>{escape(page[-1][0])}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>'
                   if more else '')
        return 200, (f'<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>{markers}{rows}'
                     f'</ListMultipartUploadsResult>')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--page', type=int, default=1000)
    parser.add_argument('--faults', type=float, default=0)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--region', default='us-east-1')
    parser.add_argument('--think', type=float, default=0)
    parser.add_argument('--trickles', type=int, default=0)
    parser.add_argument('--no-delete-objects', dest='delete_objects', action='store_false')
    Handler.store = Store(parser.parse_args())
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == '__main__':
    main()
