use half::f16;

use super::*;

#[test]
fn rejects_sizes_that_overflow() {
    let error = Tensor::zeros(ElementType::Float32, [usize::MAX, 2]).unwrap_err();
    assert!(matches!(error, TensorError::TooLarge { .. }));
    assert!(Tensor::from_bytes(ElementType::Int64, [1 << 40, 1 << 40], &[]).is_err());
    assert!(Tensor::zeros(ElementType::String, [usize::MAX / 8]).is_err());
    assert!(Tensor::new([4_000_000_000, 0], Vec::<f32>::new()).is_err());
    assert!(Tensor::zeros(ElementType::Uint8, [0, 1 << 40, 1 << 40]).is_err());
    assert!(Tensor::zeros(ElementType::Uint8, [0]).unwrap().reshape([1 << 30, 0]).is_err());
    assert!(Tensor::zeros(ElementType::Uint8, [0, 1000]).is_ok());
}

#[test]
fn limits_axes_as_numpy_does() {
    let ones = |axes: usize| vec![1; axes];
    assert!(Tensor::new(ones(64), vec![1_u8]).is_ok());
    let error = Tensor::new(ones(65), vec![1_u8]).unwrap_err();
    assert_eq!(error, TensorError::TooManyAxes(65));
    assert_eq!(error.to_string(), "a tensor has at most 64 axes, not 65");
    assert_eq!(Tensor::zeros(ElementType::String, ones(1000)), Err(TensorError::TooManyAxes(1000)));
    assert_eq!(Tensor::from_bytes(ElementType::Uint8, ones(65), &[1]), Err(TensorError::TooManyAxes(65)));
    assert_eq!(Tensor::scalar(1_u8).reshape(ones(65)), Err(TensorError::TooManyAxes(65)));
    assert_eq!(Tensor::scalar(1_u8).pick(0, &[(1, 0); 65]), Err(TensorError::TooManyAxes(65)));
}

#[test]
fn bytes_round_trip() {
    let bytes: Vec<u8> = (0..24).collect();
    for element in ElementType::ALL {
        let Some(size) = element.size() else { continue };
        if element == ElementType::Bool {
            continue;
        }
        let tensor = Tensor::from_bytes(element, [24 / size], &bytes).unwrap();
        assert_eq!(tensor.bytes().unwrap(), bytes, "{element}");
    }
    assert_eq!(Tensor::from_bytes(ElementType::Bool, [1], &[2]), Err(TensorError::NotABool(2)));
}

#[test]
fn copies_shared_elements_on_write() {
    let first = Tensor::new([2], vec![1_u16, 2]).unwrap();
    let mut second = first.clone();
    second.write_bytes(2, &[7, 0]).unwrap();
    assert_eq!(first.as_slice::<u16>().unwrap(), [1, 2]);
    assert_eq!(second.as_slice::<u16>().unwrap(), [1, 7]);
    assert!(second.write_bytes(3, &[0, 0]).is_err());
    assert!(second.write_bytes(usize::MAX, &[0, 0]).is_err());
}

#[test]
fn changes_copy_shared_elements() {
    let numbers: Vec<u32> = (0..3 * STRETCH as u32 + 5).collect();
    let more: Vec<u32> = numbers.iter().map(|number| number + 1).collect();
    let add = |tensor: &mut Tensor| {
        tensor.change(|stretch: &mut [u32]| stretch.iter_mut().for_each(|number| *number += 1));
    };
    let mut tensor = Tensor::new([numbers.len()], numbers.clone()).unwrap();
    let other = tensor.clone();
    add(&mut tensor);
    assert_eq!(tensor.as_slice::<u32>().unwrap(), more);
    assert_eq!(other.as_slice::<u32>().unwrap(), numbers);
    drop(other);
    let place = tensor.as_slice::<u32>().unwrap().as_ptr();
    add(&mut tensor);
    assert_eq!(tensor.as_slice::<u32>().unwrap()[7], 9);
    assert_eq!(tensor.as_slice::<u32>().unwrap().as_ptr(), place, "nobody else holds them");
    tensor.change(|stretch: &mut [f32]| stretch.fill(0.0));
    assert_eq!(tensor.as_slice::<u32>().unwrap()[7], 9, "they are of another type");
}

#[test]
fn permute_follows_numpy() {
    let tensor = Tensor::new([2, 1, 3], vec![1, 2, 3, 4, 5, 6_i32]).unwrap();
    let moved = tensor.permute(&[2, 0, 1]).unwrap();
    assert_eq!(moved.shape(), [3, 2, 1]);
    assert_eq!(moved.as_slice::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    assert!(tensor.permute(&[0, 0, 1]).is_err());
    assert!(tensor.permute(&[0, 1, 9]).is_err());
}

#[test]
fn casts_follow_numpy() {
    let tensor = Tensor::new([4], vec![-1.9_f32, 0.0, 1.9, 300.0]).unwrap();
    let cast = |to| tensor.cast(to).unwrap();
    assert_eq!(cast(ElementType::Int32).as_slice::<i32>().unwrap(), [-1, 0, 1, 300]);
    assert_eq!(cast(ElementType::Bool).as_slice::<bool>().unwrap(), [true, false, true, true]);
    assert_eq!(cast(ElementType::Float16).as_slice::<f16>().unwrap()[2], f16::from_f32(1.9));
    assert!(tensor.cast(ElementType::String).is_err());
    assert_eq!(cast(ElementType::Uint8).as_slice::<u8>().unwrap(), [0, 0, 1, 255]);
    let wide = Tensor::new([3], vec![300_i64, -1, i64::MIN]).unwrap();
    assert_eq!(wide.cast(ElementType::Uint8).unwrap().as_slice::<u8>().unwrap(), [44, 255, 0]);
}

/// A cancelled caller.
struct CancelledCheck;

impl CancelCheck for CancelledCheck {
    fn can_continue(&self, _: usize) -> bool {
        false
    }
}

#[test]
fn cancels_long_work() {
    let tensor = Tensor::zeros(ElementType::Uint8, [100, 200]).unwrap();
    assert_eq!(tensor.cast_cancellable(ElementType::Float16, &CancelledCheck), Err(TensorError::Stopped));
    assert_eq!(tensor.permute_cancellable(&[1, 0], &CancelledCheck), Err(TensorError::Stopped));
    assert_eq!(tensor.pick_cancellable(0, &[(20_000, 1)], &CancelledCheck), Err(TensorError::Stopped));
}

/// Elements in somebody else's memory, which others read too.
struct Owner(Vec<f32>);

impl ElementsOwner<f32> for Owner {
    fn elements(&self) -> &[f32] {
        &self.0
    }
}

/// Elements in memory that was handed over.
struct HandedOver(Vec<f32>);

impl ElementsOwner<f32> for HandedOver {
    fn elements(&self) -> &[f32] {
        &self.0
    }

    fn elements_mut(&mut self) -> Option<&mut [f32]> {
        Some(&mut self.0)
    }

    fn is_writable(&self) -> bool {
        true
    }
}

#[test]
fn foreign_elements_are_read_in_place_and_copied_on_write() {
    let owner = Owner(vec![1.0, 2.0, 3.0]);
    let address = owner.0.as_ptr();
    let mut tensor = Tensor::from_elements([3], Elements::from_owner(owner)).unwrap();
    assert_eq!((tensor.element(), tensor.len(), tensor.byte_len()), (ElementType::Float32, 3, 12));
    assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), address);
    assert_eq!(tensor, Tensor::new([3], vec![1_f32, 2.0, 3.0]).unwrap());

    let before = tensor.clone();
    tensor.change(|numbers: &mut [f32]| numbers.iter_mut().for_each(|number| *number += 1.0));
    assert_eq!(tensor.as_slice::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    assert_eq!(before.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);

    let mut data = before.into_data();
    assert!(with_elements!(&data, data => data.is_shared()));
    with_elements!(&mut data, data => _ = data.make_mut());
    assert!(!with_elements!(&data, data => data.is_shared()));

    let error = Tensor::from_elements([4], Elements::from_owner(Owner(vec![0.0]))).unwrap_err();
    assert!(matches!(error, TensorError::Length { expected: 4, given: 1, .. }));
}

#[test]
fn foreign_elements_of_one_owner_are_written_in_place() {
    let owner = HandedOver(vec![1.0, 2.0]);
    let address = owner.0.as_ptr();
    let mut tensor = Tensor::from_elements([2], Elements::from_owner(owner)).unwrap();
    tensor.as_mut_slice::<f32>().unwrap()[0] = 3.0;
    assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), address);

    let before = tensor.clone();
    tensor.as_mut_slice::<f32>().unwrap()[1] = 4.0;
    assert_eq!(tensor.as_slice::<f32>().unwrap(), [3.0, 4.0]);
    assert_eq!(before.as_slice::<f32>().unwrap(), [3.0, 2.0]);
    assert_eq!(before.as_slice::<f32>().unwrap().as_ptr(), address, "the one left has them in place");
    assert!(!with_elements!(&before.into_data(), data => data.is_shared()));
}
