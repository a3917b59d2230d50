#include "comm/bootstrap/rendezvous.h"

#include "base/bytes.h"

namespace unisono::bootstrap {
std::string frame(FrameType type, std::string_view body) {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(body.size()));
  writer.put(static_cast<uint8_t>(type));
  writer.put_bytes(body);
  return writer.take();
}

std::string opening_bytes(std::string_view magic, uint64_t number) {
  ByteWriter writer;
  writer.put_bytes(magic);
  writer.put(number);
  return writer.take();
}

net::HandshakeFields handshake_fields(uint64_t job) {
  net::HandshakeFields fields;
  fields.job = job;
  fields.purpose = net::Purpose::kRendezvous;
  return fields;
}

net::Handshake::Nonce fresh_nonce() {
  net::Handshake::Nonce nonce;
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

net::Secret handout_proof(const net::Secret& key, std::string_view client_nonce,
                          std::string_view server_nonce, std::string_view id) {
  std::string message(client_nonce);
  message += server_nonce;
  message += id;
  return make_proof(key, "unisono hand-out", message);
}

net::Secret derived_secret(const net::Secret& key, uint64_t job) {
  ByteWriter writer;
  writer.put(job);
  return make_proof(key, "unisono id secret", writer.take());
}

}  // namespace unisono::bootstrap
