// SPDX-License-Identifier: Apache-2.0
// A device for tests where no GPU is: PyTorch's PrivateUse1 ("privateuseone"), whose memory the
// host cannot read. It is ordinary memory, but a tensor's data pointer is the address of it plus an
// offset that no process may touch: whoever takes the pointer of such a tensor for memory of the
// host ends by SIGSEGV.
//
// Operators compute on the host, on tensors over the same memory under its real address; copies
// from and to the host are the only way in and out, as with a GPU. What it does not show: kernels
// that run while the host goes on, and streams.
//
// A library without Python: torch.ops.load_library() makes the device known. Beside it the operator
// starling_standin::copies() counts copies of tensors from the device to the host.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace {

constexpr std::uintptr_t kOffset = std::uintptr_t{1} << 62;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
std::atomic<int64_t> copies_to_host = 0;

void* Real(void* pointer) {
  return pointer == nullptr
             ? nullptr
             : reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(pointer) - kOffset);
}

void Free(void* pointer) { std::free(Real(pointer)); }

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) const override {
    void* real = size == 0 ? nullptr : std::malloc(size);
    void* shown = real == nullptr
                      ? nullptr
                      : reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(real) + kOffset);
    return {shown, shown, &Free, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
};

Memory memory;

// One device, one stream, in which everything is done when it returns.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kDevice;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kDevice, 0));
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(getDevice()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

bool IsHere(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDevice;
}

// The same numbers as a tensor of the host.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (!IsHere(tensor)) return tensor;
  const c10::Storage& storage = tensor.storage();
  at::Tensor host = at::empty({0}, at::TensorOptions(tensor.dtype()));
  if (storage.nbytes() == 0) return host.resize_(tensor.sizes());
  const at::Tensor bytes =
      at::from_blob(Real(storage.data()), {static_cast<int64_t>(storage.nbytes())}, at::kByte);
  return host.set_(bytes.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

at::Tensor Empty(at::IntArrayRef size, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout>, c10::optional<at::Device>, c10::optional<bool>,
                 c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                        c10::optional<at::Device>, c10::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, kKeys,
                                           c10::dtype_or_default(type));
}

// A result of the host as a tensor of the device.
at::Tensor ToDevice(const at::Tensor& host) {
  if (!host.defined() || IsHere(host)) return host;
  at::Tensor found = at::detail::empty_strided_generic(host.sizes(), host.strides(), &memory, kKeys,
                                                       host.scalar_type());
  OnHost(found).copy_(host);
  return found;
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& into, bool) {
  if (IsHere(self) && !IsHere(into)) ++copies_to_host;
  OnHost(into).copy_(OnHost(self));
  return into;
}

void Resize(const at::Tensor& tensor, at::IntArrayRef size) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes =
      (static_cast<size_t>(impl->storage_offset()) + impl->numel()) * impl->itemsize();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return;
  c10::DataPtr larger = memory.allocate(bytes);
  if (storage->nbytes() > 0) {
    std::memcpy(Real(larger.get()), Real(storage->data()), storage->nbytes());
  }
  storage->set_data_ptr_noswap(std::move(larger));
  storage->set_nbytes(bytes);
}

const at::Tensor& ResizeInPlace(const at::Tensor& self, at::IntArrayRef size,
                                c10::optional<at::MemoryFormat>) {
  Resize(self, size);
  return self;
}

at::Tensor AsStrided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                     c10::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor View(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor ReshapeAlias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  c10::optional<at::Tensor> host_bias;
  if (bias && bias->defined()) host_bias = OnHost(*bias);
  return ToDevice(at::convolution(OnHost(input), OnHost(weight), host_bias, stride, padding,
                                  dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  const std::vector<int64_t> bias = {weight.size(0)};
  auto [a, b, c] = at::convolution_backward(OnHost(gradient), OnHost(input), OnHost(weight),
                                            at::IntArrayRef(bias), stride, padding, dilation,
                                            transposed, output_padding, groups, mask);
  return {ToDevice(a), ToDevice(b), ToDevice(c)};
}

// What stands for the arguments of a call on the host.
class Arguments {
 public:
  c10::IValue Take(const c10::IValue& value) {
    if (value.isTensor()) return Take(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> hosts;
      for (const at::Tensor& one : value.toTensorVector()) hosts.push_back(Take(one));
      return hosts;
    }
    if (value.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> hosts;
      for (const c10::optional<at::Tensor>& one : value.toOptionalTensorVector()) {
        hosts.push_back(one ? c10::optional<at::Tensor>(Take(*one)) : c10::nullopt);
      }
      return hosts;
    }
    if (value.isDevice()) return c10::IValue(c10::Device(c10::DeviceType::CPU));
    return value;
  }
  // A result that is an argument is the argument.
  c10::IValue Give(const c10::IValue& value) {
    if (value.isTensor()) return Give(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> found;
    for (const at::Tensor& one : value.toTensorVector()) found.push_back(Give(one));
    return found;
  }
  // What the operator has given another size or other memory.
  void WriteBack() {
    for (const auto& [own, host] : pairs_) {
      if (own.sizes() == host.sizes() && Real(own.data_ptr()) == host.data_ptr()) continue;
      Resize(own, host.sizes());
      OnHost(own).copy_(host);
    }
  }

 private:
  at::Tensor Take(const at::Tensor& own) {
    if (!IsHere(own)) return own;
    at::Tensor host = OnHost(own);
    pairs_.emplace_back(own, host);
    return host;
  }
  at::Tensor Give(const at::Tensor& host) {
    for (const auto& [own, known] : pairs_) {
      if (known.is_same(host)) return own;
      const bool view = host.defined() && host.numel() > 0 && host.has_storage() &&
                        host.storage().is_alias_of(known.storage());
      if (view) return own.as_strided(host.sizes(), host.strides(), host.storage_offset());
    }
    return pairs_.empty() ? host : ToDevice(host);
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

void ComputeOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Arguments arguments;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    (*stack)[i] = arguments.Take((*stack)[i]);
  }
  op.callBoxed(stack);
  arguments.WriteBack();
  const size_t results = op.schema().returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); ++i) {
    (*stack)[i] = arguments.Give((*stack)[i]);
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&ComputeOnHost>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("resize_", &ResizeInPlace);
  library.impl("as_strided", &AsStrided);
  library.impl("view", &View);
  library.impl("_reshape_alias", &ReshapeAlias);
  library.impl("convolution_overrideable", &Convolution);
  library.impl("convolution_backward_overrideable", &ConvolutionBackward);
}

TORCH_LIBRARY(starling_standin, library) {
  library.def("copies() -> int", []() -> int64_t { return copies_to_host; });
}

}  // namespace
